"""Features: one file per physical idea, combined by `assemble`.

A *block* (`xlarank.features.block`) declares its columns. Blocks read shared intermediate results from a *context*
(`program`, `layout`, `tile`). Equal nodes with equal layouts are computed once and looked up by configuration.
"""
