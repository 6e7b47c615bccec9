//! Archive of the library in a development build, which `tools/dropin --dev` links. As an example
//! it is built with the rest of the workspace, and with the same features.

pub use xwarp_dropin::*;
