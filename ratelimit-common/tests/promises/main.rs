//! What the algorithms promise, as properties.

mod gcra;
mod window;
