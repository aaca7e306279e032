"""Each table and figure of the paper as one TOML file, and the runner behind them."""
