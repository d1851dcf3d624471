//! The lab world: scenarios on real kernels, in namespaces and guests

pub mod tenant;
