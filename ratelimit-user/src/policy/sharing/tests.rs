//! Ports and destinations that services share.
