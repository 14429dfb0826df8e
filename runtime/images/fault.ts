/** What is wrong with a picture, and what to do about it: the text of an `invalid-argument`. */
export class ImageFault extends Error {
  override readonly name = 'ImageFault';
}
