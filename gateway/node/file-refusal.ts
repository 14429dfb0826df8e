import type { PutFileOutcome } from '#scheduler/invocations/files.ts';
import {
  MAX_FAMILY_FILES_BYTES,
  MAX_FILES,
  MAX_FILES_BYTES,
  MAX_TENANT_FILES_BYTES,
} from '#scheduler/invocations/types.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

type ReachedLimit = Exclude<PutFileOutcome, 'ok' | 'unknown' | 'ended'>;

/** The error for a file that the invocation cannot store, because it would exceed this limit. */
export function fileRefusal(id: string, limit: ReachedLimit): GatewayError {
  switch (limit) {
    case 'too-many':
      return new GatewayError('conflict', `The invocation ${id} has ${MAX_FILES} files, the maximum.`, {
        hint: 'Replace one of them, or put several into one archive.',
      });
    case 'too-large':
      return new GatewayError(
        'body-too-large',
        `The files of ${id} would have more than ${MAX_FILES_BYTES} bytes together.`,
        { hint: 'Send smaller files, replace one of those that the invocation has, or start another invocation.' },
      );
    case 'family-full':
      return new GatewayError(
        'body-too-large',
        `The files of ${id}, its parents and their children would have more than ${MAX_FAMILY_FILES_BYTES} bytes together.`,
        { hint: 'Send smaller files, or start another invocation.' },
      );
    case 'tenant-full':
      return new GatewayError(
        'too-many-requests',
        `The stored files of this tenant would have more than ${MAX_TENANT_FILES_BYTES} bytes together.`,
        {
          hint: 'Send smaller files, or try again later: the files of an invocation are deleted some time after its end, by default a day.',
        },
      );
  }
}
