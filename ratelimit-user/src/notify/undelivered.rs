//! Why a notification did not get through.

/// Why a message has not arrived.
#[derive(Debug)]
pub(super) struct Undelivered {
    pub(super) why: String,
    /// The receiver will say the same of this message each time: trying again would only hold up the next.
    pub(super) is_final: bool,
}

impl From<String> for Undelivered {
    fn from(why: String) -> Self {
        Self { why, is_final: false }
    }
}
