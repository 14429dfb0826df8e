import net from 'node:net';
import { PieClient } from '../client/client.ts';
import { type Credentials, findCredentials } from './credentials.ts';
import { EXIT, Failure } from './failure.ts';

/** Longest wait for a connection: a restarting gateway is back sooner. */
const CONNECT_DEADLINE_MS = 2000;
const RETRY_MS = 100;

/** Returns a client of the platform that the credentials name, once a connection to its address has succeeded. */
export async function connect(): Promise<{ client: PieClient; credentials: Credentials }> {
  const credentials = findCredentials();
  await assertListening(credentials);
  return { client: new PieClient({ url: credentials.url, apiKey: credentials.apiKey }), credentials };
}

async function assertListening(credentials: Credentials): Promise<void> {
  const endpoint = endpointOf(new URL(credentials.url));
  const giveUpAt = performance.now() + CONNECT_DEADLINE_MS;
  for (;;) {
    const problem = await tryConnect(endpoint, Math.max(RETRY_MS, giveUpAt - performance.now()));
    if (problem === null) return;
    if (performance.now() + RETRY_MS >= giveUpAt) {
      throw new Failure(`Nothing answers at ${credentials.url}.`, {
        exitCode: EXIT.unreachable,
        code: 'connection-failed',
        why: `${problem} (the address is from ${credentials.source}).`,
        advice: 'Start the platform with `npm start` (or `pie up`). If it runs, `pie doctor` looks for the cause.',
      });
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** Host and port of an http or https URL. */
export const endpointOf = ({ hostname, port, protocol }: URL): { host: string; port: number } => ({
  host: hostname.replace(/^\[|\]$/g, ''),
  port: Number(port) || (protocol === 'https:' ? 443 : 80),
});

/** Null when the connection succeeds, else the cause. */
export function tryConnect(to: net.NetConnectOpts, timeoutMs: number): Promise<string | null> {
  return new Promise((resolve) => {
    const socket = net.connect(to);
    const end = (problem: string | null) => {
      socket.destroy();
      resolve(problem);
    };
    socket.setTimeout(timeoutMs, () => end(`No answer within ${Math.round(timeoutMs)} ms`));
    socket.once('connect', () => end(null));
    socket.once('error', (error: NodeJS.ErrnoException) =>
      end(error.code === 'ECONNREFUSED' ? 'The connection was refused' : error.message || String(error.code)),
    );
  });
}
