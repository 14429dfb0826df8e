import { readFileSync } from 'node:fs';
import path from 'node:path';
import { EXIT, Failure } from './failure.ts';
import { home } from './paths.ts';

export interface Credentials {
  readonly url: string;
  readonly apiKey: string;
  /** Source of the address. */
  readonly source: string;
}

/** The file that the platform's first start writes. */
export function credentialsFile(environment: NodeJS.ProcessEnv = process.env): string {
  return path.join(home(environment), 'credentials.json');
}

/** Address and key: `PIE_URL` and `PIE_API_KEY`, else the home's credentials.json. Throws {@link Failure} when neither exists. */
export function findCredentials(environment: NodeJS.ProcessEnv = process.env): Credentials {
  const { PIE_URL: url, PIE_API_KEY: apiKey } = environment;
  if (url && apiKey) return { url: validUrl(url, 'PIE_URL'), apiKey, source: 'PIE_URL' };
  const file = credentialsFile(environment);
  const stored = readCredentials(file);
  if (stored === null) {
    throw new Failure('No address and API key of a platform were found.', {
      exitCode: EXIT.unreachable,
      code: 'no-credentials',
      why: `${file} does not exist${url ? ' and PIE_API_KEY is not set' : ''}.`,
      advice: 'Start the platform here with `npm start` (or `pie up`), or set PIE_URL and PIE_API_KEY of another one.',
    });
  }
  return {
    url: validUrl(url || stored.url, url ? 'PIE_URL' : file),
    apiKey: apiKey || stored.apiKey,
    source: url ? 'PIE_URL' : file,
  };
}

function readCredentials(file: string): { url: string; apiKey: string } | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw unreadable(file, error);
  }
  try {
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
    throw new Error('it has no "url" and "apiKey"');
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
