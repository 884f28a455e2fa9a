"""`ottla group`: list, describe and delete groups, and move them to other offsets."""
