//! Rates as text.
