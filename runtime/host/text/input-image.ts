import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Dimensions } from '#wit/generated/host.ts';
import { checkImage, ImageFault, readHeader, refuseSize } from '../../images/header.ts';
import { offers } from '../device/granted.ts';
import type { DeviceQueue } from '../device/queue.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { notGranted } from './detokenize.ts';

/** Implements `wit/input-image.wit`. Lists are views of the guest's memory. */
export const inputImage = {
  'image-dimensions': (_inferlet: Inferlet, image: Uint8Array): Outcome<Dimensions> => {
    const header = catchImageFault(() => readHeader(image));
    return header.tag === 'ok' ? ok({ width: header.val.width, height: header.val.height }) : header;
  },

  'image-embeds': (_inferlet: Inferlet, queue: DeviceQueue, size: Dimensions): Outcome<number> => {
    const offered = queue.offering('input-image');
    if (offered.tag === 'err') return offered;
    const refused = refuseSize(size);
    return refused === null ? ok(queue.model?.vision?.embeds ?? 0) : err(handlerError('invalid-argument', refused));
  },

  'image-token': ({ description }: Inferlet, model: string): Outcome<number> => {
    const granted = description.models.get(model);
    if (!granted) return notGranted(model);
    if (!offers(granted, 'input-image')) return err(handlerError('unsupported', `${model} takes no images`));
    const token = granted.vision?.imageToken ?? null;
    if (token !== null) return ok(token);
    return err(handlerError('unsupported', `the config of ${model} names no token that stands for an image`));
  },

  'embed-image': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    image: Uint8Array,
    positions: Uint32Array,
    embeds: Uint32Array,
  ): Promise<Outcome<undefined>> => {
    const offered = queue.offering('input-image');
    if (offered.tag === 'err') return Promise.resolve(offered);
    const refused = inferlet.refuseTokens();
    if (refused) return Promise.resolve(err(refused));
    inferlet.tokens.embed(embeds.length);
    return offered.val.embedImage(
      queue.id,
      positions,
      embeds,
      inferlet.hooks.waits.during(pixelsOf(inferlet, queue, image)),
    );
  },
};

/** The pixels that the model takes. A worker decodes and resizes the image after its header has been checked. */
function pixelsOf(inferlet: Inferlet, { model }: DeviceQueue, image: Uint8Array): Promise<Outcome<Uint8Array>> {
  const { vision } = model ?? {};
  if (!vision) return Promise.resolve(err(handlerError('unsupported', 'the model takes no images')));
  const header = catchImageFault(() => checkImage(image));
  if (header.tag === 'err') return Promise.resolve(header);
  return inferlet.services.images.prepare({
    tenant: inferlet.description.tenant,
    // Copy the image: the guest may change its memory, and the bytes are transferred to the worker.
    image: image.slice(),
    preparation: vision.preparation,
    account: inferlet.imageAccount,
    signal: inferlet.stopping,
  });
}

/** Turns an `ImageFault` into an outcome. */
function catchImageFault<T>(read: () => T): Outcome<T> {
  try {
    return ok(read());
  } catch (error) {
    if (error instanceof ImageFault) return err(handlerError('invalid-argument', error.message));
    throw error;
  }
}
