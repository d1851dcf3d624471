//! The policy language and its compilation into what core consumes
