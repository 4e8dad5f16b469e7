"""The commands of the command line, a module each: `add` puts one into the parser, and it calls the library."""
