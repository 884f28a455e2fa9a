"""What else a customer may like, learnt from what customers look at, again and again as they do."""
