//! Converged Enhanced Ethernet: eight priorities, flow control, congestion notification, transmission selection.

mod config;

pub use config::{
    Buffer, CONTROL_BYTES, CeeConfig, EtsClass, EtsConfig, PRIORITIES, Pause, PfcConfig, QcnConfig,
    QcnParams, Span,
};
