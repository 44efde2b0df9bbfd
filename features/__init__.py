"""Features: one file per physical idea, combined by `assemble`.

A *block* (`xlarank.features.block`) declares its columns. Blocks read shared intermediate results from a *context*
(`program`, `layout`, `tile`), computed once per distinct row of the configuration table and gathered by code.
"""
