"""Features: one file per physical idea, combined by `assemble`.

A *block* (`xlarank.features.block`) declares its columns and reads shared results from a *context*
(`program`, `layout`, `tile`). Equal nodes with equal layouts are computed once and
looked up by configuration.
"""
