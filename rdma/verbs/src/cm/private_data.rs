//! Private data: what the peer's application put into its MPA frame (RFC 5044 §7.1.1).

use std::ops::Deref;

/// Private data of the MPA Reply with which a peer has accepted: at most 508 bytes (RFC 6581 §6),
/// 512 with MPA revision 1 (RFC 5044 §7.1.1). It is empty if the peer's application sent none.
#[derive(Clone, Debug, Default)]
pub struct PrivateData(Vec<u8>);

impl From<Vec<u8>> for PrivateData {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<PrivateData> for Vec<u8> {
    fn from(data: PrivateData) -> Self {
        data.0
    }
}

/// Most applications parse these bytes, and use the methods of slices.
impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for PrivateData {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Equal to anything that has the same bytes.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for PrivateData {
    fn eq(&self, other: &T) -> bool {
        self.0 == other.as_ref()
    }
}
