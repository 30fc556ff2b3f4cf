//! Numbers and pieces from the front of the input; zeros and nothing when it is used up.

pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.piece(1).first().copied().unwrap_or(0)
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// Up to `bytes` bytes.
    pub(super) fn piece(&mut self, bytes: usize) -> &'a [u8] {
        let (piece, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        piece
    }
}
