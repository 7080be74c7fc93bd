"""Reads the tables of users: CSV, TSV, JSON lines, Parquet and TFRecord."""
