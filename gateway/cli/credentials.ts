import { readFileSync } from 'node:fs';
import path from 'node:path';
import { VISIBLE_ASCII } from '../app/http/request-options.ts';
import { parseCredentials, type Credentials as StoredCredentials } from '../node/credentials-file.ts';
import { EXIT, Failure } from './failure.ts';
import { home } from './paths.ts';

export interface Credentials extends StoredCredentials {
  /** Source of the address. */
  readonly source: string;
}

/** The file that the platform's first start writes. */
export function credentialsFile(environment: NodeJS.ProcessEnv = process.env): string {
  return path.join(home(environment), 'credentials.json');
}

/**
 * The address in `PIE_URL` and the key in `PIE_API_KEY`. The home's credentials.json supplies a value that is not set,
 * but its key only for its own address: another platform must not get this key. Throws {@link Failure} when the address
 * or the key is missing or malformed.
 */
export function findCredentials(environment: NodeJS.ProcessEnv = process.env): Credentials {
  const { PIE_URL: url, PIE_API_KEY: apiKey } = environment;
  if (apiKey && !VISIBLE_ASCII.test(apiKey.trim())) {
    throw new Failure('PIE_API_KEY is not an API key.', {
      code: 'bad-credentials',
      why: 'It has a character that no key has: a key has visible ASCII characters only, and no spaces.',
      advice: 'Copy the key again, as `pie keys create` printed it.',
    });
  }
  if (url && apiKey) return { url: validUrl(url, 'PIE_URL'), apiKey, source: 'PIE_URL' };
  const file = credentialsFile(environment);
  const stored = readCredentials(file);
  if (stored === null) {
    let missingText = '';
    if (url) missingText = ' and PIE_API_KEY is not set';
    else if (apiKey) missingText = ' and PIE_URL is not set';
    throw new Failure('No address and API key of a platform were found.', {
      exitCode: EXIT.unreachable,
      code: 'no-credentials',
      why: `${file} does not exist${missingText}.`,
      advice: 'Start the platform here with `npm start` (or `pie up`), or set PIE_URL and PIE_API_KEY of another one.',
    });
  }
  const storedUrl = validUrl(stored.url, file);
  if (!url) return { url: storedUrl, apiKey: apiKey || stored.apiKey, source: file };
  if (comparableOrigin(validUrl(url, 'PIE_URL')) !== comparableOrigin(storedUrl)) {
    throw new Failure('PIE_API_KEY is not set for the platform at PIE_URL.', {
      exitCode: EXIT.unreachable,
      code: 'no-credentials',
      why: `The key in ${file} belongs to ${storedUrl}.`,
      advice: `Set PIE_API_KEY to a key of ${url}, or unset PIE_URL to use the platform of this home.`,
    });
  }
  return { url: validUrl(url, 'PIE_URL'), apiKey: stored.apiKey, source: 'PIE_URL' };
}

/** Scheme, host and port, equal for both names of this machine's loopback address. */
const comparableOrigin = (url: string): string => new URL(url).origin.replace('//localhost', '//127.0.0.1');

function readCredentials(file: string): StoredCredentials | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw unreadable(file, error);
  }
  try {
    return parseCredentials(text);
  } catch (error) {
    throw unreadable(file, error);
  }
}

function unreadable(file: string, cause: unknown): Failure {
  return new Failure(`${file} cannot be read.`, {
    exitCode: EXIT.unreachable,
    code: 'bad-credentials',
    why: cause instanceof Error ? cause.message : String(cause),
    advice: 'Remove it and start the platform again, which writes a new one.',
  });
}

function validUrl(text: string, source: string): string {
  const url = URL.parse(text);
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return text.replace(/\/+$/, '');
  throw new Failure(`"${text}" (from ${source}) is not a valid platform address.`, {
    advice: 'Use an address such as http://127.0.0.1:8787.',
  });
}
