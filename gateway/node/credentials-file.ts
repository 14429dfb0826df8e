/** Content of `credentials.json`: the gateway's address and key for the command on this machine. */
export interface Credentials {
  readonly url: string;
  readonly apiKey: string;
}

/**
 * Reads the text of `credentials.json`. Throws `SyntaxError` if it is anything else. Has no schema of zod, which takes longer to load than
 * the command line that calls this function.
 */
export function parseCredentials(text: string): Credentials {
  const value: unknown = JSON.parse(text);
  if (
    typeof value === 'object' &&
    value !== null &&
    'url' in value &&
    'apiKey' in value &&
    typeof value.url === 'string' &&
    typeof value.apiKey === 'string'
  ) {
    return { url: value.url, apiKey: value.apiKey };
  }
  throw new SyntaxError('it has no "url" and "apiKey"');
}
