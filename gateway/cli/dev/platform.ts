import path from 'node:path';
import type { PieClient } from '../../client/client.ts';
import { LocalPlatform, LocalPlatformError } from '../../local/platform.ts';
import type { Call } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';

/** The platform that `pie dev` deploys to. */
interface DevPlatform extends AsyncDisposable {
  readonly client: PieClient;
  readonly url: string;
  /** True when this command started the platform. */
  readonly isOwn: boolean;
  /** Rejects when a platform that this command started ends by itself. */
  readonly ended: Promise<never>;
}

/** The configured platform if it answers, else one that this command starts and ends. Throws {@link Failure}. */
export async function devPlatform({ terminal, signal, connect }: Call): Promise<DevPlatform> {
  const runningPlatform = await connect().catch((error: unknown) => {
    // A user who names a platform, or whose key is unreadable, does not want a second platform.
    if (process.env.PIE_URL || !(error instanceof Failure) || !STARTABLE.has(error.code)) throw error;
    return null;
  });
  if (runningPlatform !== null) {
    const { client, credentials } = runningPlatform;
    return { client, url: credentials.url, isOwn: false, ended: never(), [Symbol.asyncDispose]: async () => undefined };
  }
  const progress = terminal.progress('Starting a platform');
  const localPlatform = await LocalPlatform.start({ signal, onProgress: (line) => progress.update(line) }).catch(
    (error) => {
      progress.clear();
      throw error instanceof LocalPlatformError ? startFailure(error) : error;
    },
  );
  progress.done(`Started a platform at ${localPlatform.url}; it ends with this command`);
  const ended = localPlatform.exited.then((code) => {
    throw new Failure(`The platform ended by itself${code === null ? '' : ` (exit code ${code})`}.`, {
      exitCode: EXIT.unreachable,
      code: 'platform-ended',
      advice: `Its logs are in ${path.join(localPlatform.home, 'logs')}.`,
    });
  });
  ended.catch(() => undefined); // Without a listener a rejection would end the process.
  return {
    client: localPlatform.client,
    url: localPlatform.url,
    isOwn: true,
    ended,
    [Symbol.asyncDispose]: async () => {
      const stopProgress = terminal.progress('Stopping the platform');
      await localPlatform.stop();
      stopProgress.done('Stopped the platform');
    },
  };
}

/** Failure codes that mean that no platform runs here. */
const STARTABLE: ReadonlySet<string> = new Set(['no-credentials', 'connection-failed']);

function startFailure(error: LocalPlatformError): Failure {
  const [firstLine = '', ...moreLines] = error.message.split('\n');
  return new Failure(firstLine, {
    exitCode: EXIT.unreachable,
    code: 'platform-not-started',
    why: moreLines.join('\n').trim() || undefined,
    advice: '`pie doctor` looks for what is missing.',
    cause: error,
  });
}

const never = (): Promise<never> => new Promise(() => undefined);
