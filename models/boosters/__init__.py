"""LightGBM and XGBoost behind one interface: fitting, scoring, contributions and text."""
