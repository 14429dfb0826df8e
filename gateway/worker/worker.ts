import type { LogFields, Logger } from '#scheduler/policies/logger.ts';
import { createApp } from '../app/app.ts';
import type { Guides } from '../app/docs/pages.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import { originControlPlane } from './control-plane.ts';

/** Bindings of the worker; see wrangler.jsonc. */
export interface Env {
  /** Address of a Node gateway, such as `https://origin.example.com`. */
  readonly ORIGIN_URL: string;
  /** A service binding that reaches the origin without the public network; optional. */
  readonly ORIGIN?: { fetch(request: Request | string, init?: RequestInit): Promise<Response> };
  /** Origins whose pages may call the API from a browser, with commas between them, or `*`; none by default. As `[http] cors_origins` of pie.toml. */
  readonly CORS_ORIGINS?: string;
  /** Seals the dashboard's sessions; at least 32 characters (`wrangler secret put SESSION_SECRET`). By default, sessions end with the isolate. */
  readonly SESSION_SECRET?: string;
}

/** The part of workerd's handler context that the app uses. */
interface WorkerContext {
  waitUntil(work: Promise<unknown>): void;
  passThroughOnException(): void;
  readonly props: unknown;
}

/** workerd notices that a client has left only when it writes to that client. A heartbeat is a write, so this interval bounds the delay. */
const HEARTBEAT_MS = 250;
/** Longest wait for the first frame of a stream. No heartbeat comes before that frame, so until then this wait bounds the delay. */
const FIRST_FRAME_MS = 1000;

/** An isolate has 128 MB of memory. */
const LIMITS = { heldBodyBytes: 96 * 1024 * 1024, streams: 4096, streamsPerKey: 1024 };

const GUIDES_DEADLINE_MS = 10_000;

type App = ReturnType<typeof createApp>;
const apps = new WeakMap<Env, App>();

/** Records as JSON on the console, which workerd's platform collects with the time and level of each. */
const log: Logger = {
  error: (fields, message) => console.error(record('error', fields, message)),
  warn: (fields, message) => console.warn(record('warn', fields, message)),
  info: (fields, message) => console.info(record('info', fields, message)),
};

function record(level: string, { error, ...fields }: LogFields, message: string): string {
  return JSON.stringify({ level, ...fields, ...(error !== undefined && { error: String(error) }), message });
}

/** The same app as on Node, at the edge. */
export default {
  fetch(request: Request, env: Env, context: WorkerContext): Response | Promise<Response> {
    let app = apps.get(env);
    if (app === undefined) {
      const binding = env.ORIGIN;
      const control = originControlPlane({
        url: env.ORIGIN_URL,
        log,
        ...(binding === undefined ? {} : { fetch: (url: string, init: RequestInit) => binding.fetch(url, init) }),
      });
      app = createApp(control, {
        limits: LIMITS,
        heartbeatMs: HEARTBEAT_MS,
        firstFrameMs: FIRST_FRAME_MS,
        clientAddress: (c) => c.req.header('cf-connecting-ip') ?? '',
        ...(env.SESSION_SECRET === undefined ? {} : { sessionSecret: new TextEncoder().encode(env.SESSION_SECRET) }),
        corsOrigins: (env.CORS_ORIGINS ?? '')
          .split(',')
          .map((origin) => origin.trim())
          .filter((origin) => origin !== ''),
        guides: originGuides(env),
        log,
      });
      apps.set(env, app);
    }
    return app.fetch(request, env, context);
  },
};

/** The guides of the origin, which has the files. */
function originGuides({ ORIGIN, ORIGIN_URL }: Env): Guides {
  async function read(path: string): Promise<Uint8Array<ArrayBuffer> | null> {
    const address = new URL(path, ORIGIN_URL).href;
    const init = { signal: AbortSignal.timeout(GUIDES_DEADLINE_MS) };
    let status: number;
    try {
      const response = await (ORIGIN === undefined ? fetch(address, init) : ORIGIN.fetch(address, init));
      if (response.ok) return new Uint8Array(await response.arrayBuffer());
      status = response.status;
      await response.body?.cancel();
    } catch (cause) {
      throw new GatewayError('origin-unavailable', 'The origin cannot be reached.', { cause });
    }
    if (status === 404) return null;
    throw new GatewayError('origin-unavailable', `The origin answered with the status ${status}.`);
  }
  async function readText(path: string): Promise<string | null> {
    const bytes = await read(path);
    return bytes === null ? null : new TextDecoder().decode(bytes);
  }
  return {
    page: (name) => readText(`/docs/guides/${name}`),
    index: async () => (await readText('/docs/guides')) ?? '',
    image: (name) => read(`/docs/images/${name}`),
  };
}
