"""From a graph to numbers: one file per physical idea, put together by `assemble`.

A *block* (see `xlarank.features.block`) declares its columns once, with their meaning and cost. Blocks read
shared intermediate results from a *context* (`program`, `layout`, `tile`), where everything physical
is computed once per distinct row of the configuration table and gathered through its codes.
"""
