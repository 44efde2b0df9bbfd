"""Tables of results: `tables` makes them, `stored` keeps and renders them by version."""
