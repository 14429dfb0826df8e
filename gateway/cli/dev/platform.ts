import path from 'node:path';
import type { PieClient } from '../../client/client.ts';
import { LocalPlatform, LocalPlatformError } from '../../local/platform.ts';
import type { Call } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';

/** The platform that `pie dev` deploys to. */
export interface DevPlatform extends AsyncDisposable {
  readonly client: PieClient;
  readonly url: string;
  /** True when this command started the platform. */
  readonly own: boolean;
  /** Rejects when a platform that this command started ends by itself. */
  readonly ended: Promise<never>;
}

/** The configured platform if it answers, else one that this command starts and ends. Throws {@link Failure}. */
export async function devPlatform({ terminal, signal, connect }: Call): Promise<DevPlatform> {
  const found = await connect().catch((error: unknown) => {
    // A user who names a platform, or whose key is unreadable, does not want a second platform.
    if (process.env.PIE_URL || !(error instanceof Failure) || !STARTABLE.has(error.code)) throw error;
    return null;
  });
  if (found !== null) {
    const { client, credentials } = found;
    return { client, url: credentials.url, own: false, ended: never(), [Symbol.asyncDispose]: async () => undefined };
  }
  const progress = terminal.progress('Starting a platform');
  const started = await LocalPlatform.start({ signal, onProgress: (line) => progress.update(line) }).catch((error) => {
    progress.clear();
    throw error instanceof LocalPlatformError ? startFailure(error) : error;
  });
  progress.done(`Started a platform at ${started.url}; it ends with this command`);
  const ended = started.exited.then((code) => {
    throw new Failure(`The platform ended by itself${code === null ? '' : ` (exit code ${code})`}.`, {
      exitCode: EXIT.unreachable,
      code: 'platform-ended',
      advice: `Its logs are in ${path.join(started.home, 'logs')}.`,
    });
  });
  ended.catch(() => undefined); // Without a listener a rejection would end the process.
  return {
    client: started.client,
    url: started.url,
    own: true,
    ended,
    [Symbol.asyncDispose]: async () => {
      const stopping = terminal.progress('Stopping the platform');
      await started.stop();
      stopping.done('Stopped the platform');
    },
  };
}

/** Failure codes that mean that no platform runs here. */
const STARTABLE: ReadonlySet<string> = new Set(['no-credentials', 'connection-failed']);

function startFailure(error: LocalPlatformError): Failure {
  const [what = '', ...more] = error.message.split('\n');
  return new Failure(what, {
    exitCode: EXIT.unreachable,
    code: 'platform-not-started',
    why: more.join('\n').trim() || undefined,
    advice: '`pie doctor` looks for what is missing.',
    cause: error,
  });
}

const never = (): Promise<never> => new Promise(() => undefined);
