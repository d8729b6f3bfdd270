"""What the commands in ci/ share; `bootstrap` needs the standard library only, the rest the tools' environment."""
