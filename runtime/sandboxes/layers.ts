import type { ISOLATION_LAYERS } from '#scheduler/runtimes/types.ts';
import type { Groups } from './cgroups.ts';

/** Isolation level that the configuration asks for: `auto` takes the strongest that works; the others have no fallback. */
export type Isolation = 'auto' | (typeof ISOLATION_LAYERS)[number];

/** Confinement tools that work on this machine. */
export interface Probe {
  /** bubblewrap with the options under which it starts the pinned Node in new namespaces, or the reason why it does not. */
  readonly bubblewrap: { readonly command: readonly string[] } | { readonly missing: string };
  /** setpriv with the options that it accepts here; null when setpriv is missing or accepts none. */
  readonly setpriv: readonly string[] | null;
}

/** Layers that confine the processes which this runtime starts for untrusted bytes. */
export interface Layers {
  readonly isolation: Exclude<Isolation, 'auto'>;
  /** Command in front of the confined program: bubblewrap without its mounts, or `setpriv`; empty when this machine has neither. */
  readonly wrapper: readonly string[];
  /** Message for the operator: the missing layer and how to get it. Null when no layer is missing. */
  readonly notice: string | null;
  /** Folder of compiled code (`CodeCache`) that confined processes load; only processes in namespaces use it. */
  readonly codeCache?: string;
  /** Makes a control group for each confined process; absent when the platform has no control group. */
  readonly groups?: Groups;
}

/** The machine cannot confine processes as the configuration demands. */
export class IsolationError extends Error {
  override readonly name = 'IsolationError';
}

const GET_NAMESPACES =
  'install bubblewrap (`apt-get install bubblewrap`) and let this user make user namespaces (`sysctl kernel.unprivileged_userns_clone=1` or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; in a container, give it the options of docs/containers.md)';

/**
 * Decides which layers confine processes. Pure. `auto` takes namespaces where they work, and otherwise names the missing parts.
 * @throws {IsolationError} when `namespaces` are demanded and do not work here
 */
export function layersFor(isolation: Isolation, { bubblewrap, setpriv }: Probe): Layers {
  const withoutSetpriv =
    setpriv === null
      ? 'setpriv of util-linux is missing, so confined processes may gain privileges through set-user-ID programs and outlive a killed runtime until their lifeline closes'
      : null;
  if (isolation === 'process') return { isolation, wrapper: setpriv ?? [], notice: withoutSetpriv };
  if ('command' in bubblewrap) return { isolation: 'namespaces', wrapper: bubblewrap.command, notice: null };
  if (isolation === 'namespaces') {
    throw new IsolationError(
      `The configuration demands isolation = "namespaces", and this machine does not provide them: ${bubblewrap.missing}. To get them, ${GET_NAMESPACES}. Or set isolation = "auto" under [runtime] in pie.toml to start with fewer layers.`,
    );
  }
  const fewer = `Confined processes run without namespaces: ${bubblewrap.missing}. Only Node's permission model and resource limits confine them, and nothing stops their signals to other processes of this user. To get namespaces, ${GET_NAMESPACES}`;
  return {
    isolation: 'process',
    wrapper: setpriv ?? [],
    notice: `${[fewer, withoutSetpriv].filter((part) => part !== null).join('. Also, ')}.`,
  };
}

/** Gives the process its own session with its own nice, even if its starter already made a session for it. */
export const OWN_SESSION = '--new-session';

/**
 * Unshares all namespaces; runs as user id 65534; drops capabilities, terminal and environment. bubblewrap itself sets no-new-privileges
 * and makes an empty root, which `command.ts` fills with the program's files and makes read-only.
 */
const UNSHARED: readonly string[] = [
  '--unshare-all',
  '--unshare-user',
  '--uid',
  '65534',
  '--gid',
  '65534',
  '--hostname',
  'sandbox',
  '--cap-drop',
  'ALL',
  OWN_SESSION,
  '--die-with-parent',
  '--clearenv',
];

/** bubblewrap's options by strength; the probe takes the first that works. bubblewrap before 0.8 cannot forbid nested user namespaces. */
export const BUBBLEWRAP: readonly (readonly string[])[] = [['--disable-userns', ...UNSHARED], UNSHARED];

/** setpriv's options by strength. Only root can drop capabilities from the bounding set. */
export const SETPRIV: readonly (readonly string[])[] = [
  ['--no-new-privs', '--pdeathsig', 'KILL', '--bounding-set=-all', '--inh-caps=-all'],
  ['--no-new-privs', '--pdeathsig', 'KILL'],
];
