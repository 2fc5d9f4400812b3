"""One file per verb: parsing and printing, no decisions."""
