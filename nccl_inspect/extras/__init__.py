"""Parts that import the core and that the core never imports: each is of use on its own."""
