//! Descriptors that an event loop or a waiting caller sleeps on: of objects, of the engine, and of
//! the application's own.

mod engine;
mod objects;
mod others;
