"""Where records are kept: tables in Parquet, finished work until it is in a table, and the store that both lie in."""
