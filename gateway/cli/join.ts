import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { Redis } from 'ioredis';
import { z } from 'zod';
import { type MachineCertificate, newCertificate, writeCertificate } from '#infra/links/security.ts';
import { joinedSettings, type MachineSettings, machineEnvironment, machineSettings } from '#infra/machine-settings.ts';
import { redisOptions } from '#infra/redis.ts';
import { commonVersion, statedVersions, type Versions, versionRefusal } from '#scheduler/links/versions.ts';
import { openJoin, parseJoinToken, sealJoin } from '#scheduler/machines/join-tokens.ts';
import { JOIN_VERSIONS } from '#scheduler/machines/types.ts';
import { JoinedSchema } from '../app/schemas/platform.ts';
import { errorFromResponse } from '../client/errors.ts';
import { pause } from '../client/http.ts';
import { endpointOf } from './connect.ts';
import { EXIT, Failure } from './failure.ts';

/** Longest wait for the gateway, and for Redis, in milliseconds. */
const DEADLINE_MS = 10_000;
/**
 * Longest wait for this machine's Redis user. A gateway that loses Redis after it recorded the machine makes the user
 * up to 10 s after Redis is back.
 */
const USER_MS = 15_000;
const RETRY_MS = 500;
const SETTINGS = 'pie.toml';
const REDIS_CA = 'redis-ca.pem';
const MASTER_KEY = 'master.key';
/** Each of these files marks a folder as the home of a machine: `pie join` refuses such a folder. */
const HOME_FILES = [SETTINGS, REDIS_CA, MASTER_KEY, 'machine.pem', 'credentials.json', 'redis'];

export interface JoinRequest {
  /** Address of a gateway. */
  readonly url: string;
  readonly token: string;
  readonly home: string;
  readonly name?: string;
  /** Separated by commas. */
  readonly role?: string;
  readonly address?: string;
  /** Versions of the join exchange that this machine speaks; by default those of this release. */
  readonly versions?: Versions;
  /** `PIE_MACHINE`, `PIE_ROLES` and `PIE_ADDRESS` in it are the defaults of the options. Each later start of the machine reads them as well. */
  readonly environment?: NodeJS.ProcessEnv;
}

export interface Joined {
  readonly machine: string;
  readonly roles: MachineSettings['roles'];
  readonly address: string;
  readonly home: string;
}

const answerSchema = z.object({
  redis: z.object({ url: z.string(), ca: z.string().optional() }),
  masterKey: z.string().nullable(),
  settings: z.record(z.string(), z.unknown()),
});

type RedisAccess = z.output<typeof answerSchema>['redis'];

/**
 * Joins a platform, and writes the home of this machine. Throws {@link Failure} and then leaves no new file, but the platform may have
 * registered the name and used up the token.
 */
export async function joinPlatform(givenRequest: JoinRequest, signal: AbortSignal): Promise<Joined> {
  const request = { ...optionsOf(givenRequest.environment ?? process.env), ...givenRequest };
  const { home } = request;
  const token = parseJoinToken(request.token);
  if (token === null)
    throw new Failure('This is not a join token.', {
      advice: 'Copy the whole token that `pie machines token` prints: it begins with pie-join.',
    });
  const ownedFile = HOME_FILES.find((name) => existsSync(path.join(home, name)));
  if (ownedFile !== undefined)
    throw new Failure(`${home} is already the home of a machine: it contains ${ownedFile}.`, {
      advice: 'Set PIE_HOME to a new folder, or start the machine with `pie up`.',
    });
  const gateway = gatewayUrl(request.url);
  const address = request.address ?? (await ownAddress(gateway, signal));
  const { name, roles } = settingsOf(request, address);
  const versions = request.versions ?? JOIN_VERSIONS;
  const version = await agreedVersion(gateway, versions, signal);
  const certificate = await newCertificate(name, Date.now());
  const joinBody = { machine: name, roles, certificate: certificate.fingerprint };
  const sealed = sealJoin(token.key, { direction: 'request', version }, joinBody, versions.newest);
  const body = { version, token: token.id, sealed };
  const decrypted = openJoin(token.key, { direction: 'answer', version }, await exchange(gateway, body, signal));
  const parsed = answerSchema.safeParse(decrypted);
  if (!parsed.success)
    throw new Failure(`The server at ${gateway.href} does not know the token.`, {
      exitCode: EXIT.refused,
      code: 'bad-response',
      why: 'Its answer was not encrypted under the token.',
      advice: 'Check the address.',
    });
  const { redis, masterKey, settings } = parsed.data;
  await assertRedis(redis, name, signal);
  const ca = redis.ca === undefined ? {} : { ca: REDIS_CA };
  const files = new Map([
    [SETTINGS, joinedSettings(settings, { name, roles, address, redis: { url: redis.url, ...ca } })],
    ...(redis.ca === undefined ? [] : [[REDIS_CA, redis.ca] as const]),
    ...(masterKey === null ? [] : [[MASTER_KEY, masterKey] as const]),
  ]);
  writeHome(home, files, certificate, name);
  return { machine: name, roles, address, home };
}

/** Writes the files of a new home: all of them, or none. */
function writeHome(
  home: string,
  files: ReadonlyMap<string, string>,
  certificate: MachineCertificate,
  machine: string,
): void {
  try {
    mkdirSync(home, { recursive: true, mode: 0o700 });
    for (const [file, content] of files) writeFileSync(path.join(home, file), content, { mode: 0o600 });
    writeCertificate(home, certificate);
  } catch (cause) {
    // The next `pie join` would take a folder with some of these files for the home of a machine.
    for (const file of HOME_FILES) rmSync(path.join(home, file), { force: true });
    throw new Failure(`The home ${home} could not be written.`, {
      why: cause instanceof Error ? cause.message : String(cause),
      advice: `Free the name (\`pie machines remove ${machine}\`), make another token, and join again.`,
      cause,
    });
  }
}

/** The options that the environment states. An empty variable states none. */
function optionsOf({
  PIE_MACHINE: name,
  PIE_ROLES: role,
  PIE_ADDRESS: address,
}: NodeJS.ProcessEnv): Pick<JoinRequest, 'name' | 'role' | 'address'> {
  return { ...(name && { name }), ...(role && { role }), ...(address && { address }) };
}

function gatewayUrl(text: string): URL {
  const url = URL.parse(text);
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return url;
  throw new Failure(`"${text}" is not a valid gateway address.`, {
    advice: 'Use an address such as http://10.0.0.1:8787.',
  });
}

/** The machine's name, roles and address, checked as those of a pie.toml. */
function settingsOf(request: JoinRequest, address: string): MachineSettings {
  const machineVariables = { PIE_MACHINE: request.name, PIE_ROLES: request.role, PIE_ADDRESS: address };
  const parsed = z.object(machineEnvironment).safeParse(machineVariables);
  if (parsed.success) return machineSettings({}, parsed.data);
  const issue = parsed.error.issues[0];
  const variable = String(issue?.path[0]);
  const option = { PIE_MACHINE: '--name', PIE_ROLES: '--role', PIE_ADDRESS: '--address' }[variable] ?? '';
  throw new Failure(`${option} (or ${variable}): ${issue?.message ?? 'is not valid'}.`);
}

/** The address from which this machine reaches the gateway. */
async function ownAddress(gateway: URL, signal: AbortSignal): Promise<string> {
  const socket = net.connect({ ...endpointOf(gateway), signal });
  try {
    return await new Promise<string>((resolve, reject) => {
      socket.setTimeout(DEADLINE_MS, () => reject(new Error(`no answer within ${DEADLINE_MS} ms`)));
      socket.once('error', reject);
      socket.once('connect', () => resolve((socket.localAddress ?? '').replace(/^::ffff:/, '')));
    });
  } catch (cause) {
    throw signal.aborted ? signal.reason : unreachable(gateway.host, cause);
  } finally {
    socket.destroy();
  }
}

/** The newest version of the join exchange that both this machine and the gateway speak. */
async function agreedVersion(gateway: URL, ownVersions: Versions, signal: AbortSignal): Promise<number> {
  const { response, text } = await ask(gateway, { method: 'GET' }, signal);
  if (!response.ok) throw await errorFromResponse(response, text);
  const gatewayVersions = statedVersions((jsonOf(text) as { versions?: unknown } | null)?.versions);
  if (gatewayVersions === null)
    throw new Failure(`The server at ${gateway.href} is not a Pie gateway.`, {
      exitCode: EXIT.refused,
      code: 'bad-response',
      advice: 'Check the address.',
    });
  const version = commonVersion(ownVersions, gatewayVersions);
  if (version !== null) return version;
  const sides = [
    { name: 'joining machine', versions: ownVersions },
    { name: 'gateway', versions: gatewayVersions },
  ] as const;
  throw new Failure(versionRefusal('join exchange', ...sides), { exitCode: EXIT.refused, code: 'conflict' });
}

/** Sends a request to `/join`, and returns the answer with its body. */
async function ask(
  gateway: URL,
  request: RequestInit,
  signal: AbortSignal,
): Promise<{ readonly response: Response; readonly text: string }> {
  try {
    const response = await fetch(new URL('/join', gateway), {
      ...request,
      headers: { 'content-type': 'application/json', accept: 'application/json' },
      signal: AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]),
    });
    return { response, text: await response.text() };
  } catch (cause) {
    throw signal.aborted ? signal.reason : unreachable(gateway.href, cause);
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Posts the sealed request. Returns the sealed answer, or, if the answer has another form, an empty text, which no key opens. */
async function exchange(gateway: URL, request: object, signal: AbortSignal): Promise<string> {
  const { response, text } = await ask(gateway, { method: 'POST', body: JSON.stringify(request) }, signal);
  if (!response.ok) throw await errorFromResponse(response, text);
  const body = JoinedSchema.safeParse(jsonOf(text));
  return body.success ? body.data.sealed : '';
}

/** Checks that this machine can use the platform's Redis: the address from the gateway may be one that only the gateway's machine reaches. */
async function assertRedis(redis: RedisAccess, machine: string, signal: AbortSignal): Promise<void> {
  const giveUpAt = performance.now() + USER_MS;
  for (let refusal = await refusalOf(redis); refusal !== null; refusal = await refusalOf(redis)) {
    // WRONGPASS: the gateway may not have created this machine's Redis user yet.
    if (!refusal.why.startsWith('WRONGPASS') || performance.now() > giveUpAt) {
      const { hostname, port } = new URL(redis.url);
      throw new Failure(`The platform’s Redis at ${hostname}:${port || 6379} cannot be used from here.`, {
        exitCode: EXIT.unreachable,
        code: 'connection-failed',
        why: refusal.why,
        advice: `Give the gateway’s machine a REDIS_URL that all machines reach. Then free the name (\`pie machines remove ${machine}\`) and make another token.`,
        cause: refusal.cause,
      });
    }
    await pause(RETRY_MS, signal);
  }
}

/** Tries one connection; null when Redis answers. */
async function refusalOf({ url, ca }: RedisAccess): Promise<{ readonly why: string; readonly cause: unknown } | null> {
  const options = redisOptions({ redis: { kind: 'external', url } }, { lazyConnect: true, retryStrategy: () => null });
  const redis = new Redis({
    ...options,
    ...(ca !== undefined && { tls: { ca } }),
    connectTimeout: DEADLINE_MS,
    commandTimeout: DEADLINE_MS,
    maxRetriesPerRequest: 0,
  });
  let why = '';
  redis.on('error', (error: Error) => {
    why = error.message;
  });
  try {
    await redis.connect();
    await redis.ping();
    return null;
  } catch (cause) {
    return { why: why || (cause instanceof Error ? cause.message : String(cause)), cause };
  } finally {
    redis.disconnect();
  }
}

function unreachable(gatewayAddress: string, cause: unknown): Failure {
  const reason = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
  return new Failure(`The gateway at ${gatewayAddress} cannot be reached.`, {
    exitCode: EXIT.unreachable,
    code: 'connection-failed',
    why: reason instanceof Error ? reason.message : String(reason),
    advice: 'Check the address, and that the gateway runs and this machine may connect to it.',
    cause,
  });
}
