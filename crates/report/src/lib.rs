//! Tables, plots, the HTML report, exports
