export declare const crypto: Crypto;
