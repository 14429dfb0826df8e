/** The configuration is wrong. The message names the fault, its place and the remedy. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}
