"""Operations of the store contract on SQLite, one module per noun.

Each module holds the contract methods of its noun and the write functions that they submit to the
writer. A write function has the name of its method, takes the items of many calls and returns one
answer per item, in order.
"""
