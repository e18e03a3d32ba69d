"""Recipes: schema, parser, rules, catalog. Pure: these modules read files at most."""
