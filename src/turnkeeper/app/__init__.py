"""The only place that names concrete classes and joins them: `Keeper.open` is here."""
