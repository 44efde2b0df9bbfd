"""Advice on layouts: diagnosis of one compilation, entry layouts, and a search by estimates or
measurements.
"""
