//! `STag`s: the table that every access is checked against, and the users of its entries (verbs
//! draft §7).

mod bindings;
mod domains;
mod entries;
mod entry;
mod invalidate;
mod register;
mod scattered;
mod table;
#[cfg(test)]
mod tests;
mod users;
mod view;
mod views;
mod windows;

pub use domains::Domains;
pub use register::NotReregistered;
pub use table::{RandomSource, StagTable};
pub use users::Users;

pub(crate) use view::Bytes;
#[cfg(test)]
pub(crate) use view::View;
pub(crate) use views::Views;
