//! The delta core: block signatures, rolling search, tokens, apply.
