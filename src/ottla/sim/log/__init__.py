"""The world `log`: one log on a faulty disk."""
