/** The configuration is wrong; the message says what, where, and what to do. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}
