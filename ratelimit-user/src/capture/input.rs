//! Reads the bytes of a file and counts them.

use std::{
    fmt,
    io::{self, ErrorKind, Read},
};

use super::CaptureError;

/// A file that is read from front to back.
pub(super) struct Input {
    name: String,
    from: Box<dyn Read>,
    offset: u64,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("name", &self.name)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Input {
    pub(super) fn new(name: &str, from: Box<dyn Read>) -> Self {
        Self { name: name.to_owned(), from, offset: 0 }
    }

    /// How many bytes have been read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// An error about the bytes at an offset.
    pub(super) fn error(&self, offset: u64, what: impl fmt::Display) -> CaptureError {
        CaptureError::at(&self.name, offset, what)
    }

    /// Reads the next N bytes; `what` names them in errors.
    pub(super) fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], CaptureError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// Reads the next N bytes; `None` if the file ends before them.
    pub(super) fn take_unless_over<const N: usize>(
        &mut self,
        what: &str,
    ) -> Result<Option<[u8; N]>, CaptureError> {
        let mut bytes = [0; N];
        let got = self.read(&mut bytes, what)?;
        match got {
            0 if N > 0 => Ok(None),
            got if got == N => Ok(Some(bytes)),
            got => Err(self.cut_short(got, N, what)),
        }
    }

    /// Reads `len` bytes into a buffer, replacing its content. The caller has bounded `len`.
    pub(super) fn take_into(
        &mut self,
        buffer: &mut Vec<u8>,
        len: usize,
        what: &str,
    ) -> Result<(), CaptureError> {
        buffer.resize(len, 0);
        self.fill(buffer, what)
    }

    /// Skips `len` bytes.
    pub(super) fn skip(&mut self, len: u64, what: &str) -> Result<(), CaptureError> {
        let (mut left, mut buffer) = (len, [0; 4096]);
        while left > 0 {
            let piece = left.min(buffer.len() as u64) as usize;
            self.fill(&mut buffer[..piece], what)?;
            left -= piece as u64;
        }
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<(), CaptureError> {
        let got = self.read(bytes, what)?;
        if got == bytes.len() { Ok(()) } else { Err(self.cut_short(got, bytes.len(), what)) }
    }

    /// Reads as many bytes as the file still has, at most as many as the buffer holds.
    fn read(&mut self, bytes: &mut [u8], what: &str) -> Result<usize, CaptureError> {
        let mut got = 0;
        while got < bytes.len() {
            match self.from.read(&mut bytes[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(self.offset + got as u64, failed(what, &error))),
            }
        }
        self.offset += got as u64;
        Ok(got)
    }

    fn cut_short(&self, got: usize, wanted: usize, what: &str) -> CaptureError {
        let at = self.offset - got as u64;
        self.error(
            at,
            format!("{what} should have {wanted} bytes here, and the file ends after {got}; it was cut off, or is no capture (whole packets of it can be saved with: tcpdump -r FILE -w WHOLE)"),
        )
    }
}

fn failed(what: &str, error: &io::Error) -> String {
    format!("{what} cannot be read: {error}")
}
