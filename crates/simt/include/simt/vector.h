// CUDA's built-in vector types, with CUDA's alignments.
#pragma once

#define SIMT_VECTOR2(name, T, align)            \
  struct __attribute__((aligned(align))) name { \
    T x, y;                                     \
  };                                            \
  inline name make_##name(T x, T y) { return name{x, y}; }
#define SIMT_VECTOR4(name, T, align)            \
  struct __attribute__((aligned(align))) name { \
    T x, y, z, w;                               \
  };                                            \
  inline name make_##name(T x, T y, T z, T w) { return name{x, y, z, w}; }

SIMT_VECTOR2(char2, signed char, 2)
SIMT_VECTOR2(uchar2, unsigned char, 2)
SIMT_VECTOR2(short2, short, 4)
SIMT_VECTOR2(ushort2, unsigned short, 4)
SIMT_VECTOR2(int2, int, 8)
SIMT_VECTOR2(uint2, unsigned, 8)
SIMT_VECTOR2(float2, float, 8)
SIMT_VECTOR2(longlong2, long long, 16)
SIMT_VECTOR2(ulonglong2, unsigned long long, 16)
SIMT_VECTOR2(double2, double, 16)
SIMT_VECTOR4(char4, signed char, 4)
SIMT_VECTOR4(uchar4, unsigned char, 4)
SIMT_VECTOR4(short4, short, 8)
SIMT_VECTOR4(ushort4, unsigned short, 8)
SIMT_VECTOR4(int4, int, 16)
SIMT_VECTOR4(uint4, unsigned, 16)
SIMT_VECTOR4(float4, float, 16)

#undef SIMT_VECTOR2
#undef SIMT_VECTOR4

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
