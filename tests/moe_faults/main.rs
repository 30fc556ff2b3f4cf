//! What dispatch and combine do when ranks are late, die, or their words are reordered.
