/**
 * Since 1.29, ONNX Runtime reports sessions, models and the machine to its maker, and keeps a database of reports in the user's cache. The
 * library reads this variable when it is loaded. A value that the operator has set stays.
 */
process.env.ORT_DISABLE_TELEMETRY ??= '1';
