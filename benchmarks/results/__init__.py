"""Tables of results: `tables` makes one, `stored` keeps and renders it, one JSON file a version
beside them.
"""
