#include "reference/numeric/prime_field.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <boost/multiprecision/gmp.hpp>

namespace attest {
namespace {

using Integer = boost::multiprecision::mpz_int;

Integer modulo(Integer value) {
  const Integer p(PrimeField::modulus);
  value %= p;
  return value < 0 ? Integer(value + p) : value;
}

RC_GTEST_PROP(PrimeField, AgreesWithIntegersModuloP, ()) {
  const auto x = *rc::gen::arbitrary<std::uint64_t>(), y = *rc::gen::arbitrary<std::uint64_t>();
  const auto a = PrimeField::from_residue(x), b = PrimeField::from_residue(y);
  const Integer i(x), j(y);
  RC_ASSERT(Integer((a + b).residue()) == modulo(i + j));
  RC_ASSERT(Integer((a - b).residue()) == modulo(i - j));
  RC_ASSERT(Integer((a * b).residue()) == modulo(i * j));
  RC_ASSERT(Integer((-a).residue()) == modulo(-i));
}

RC_GTEST_PROP(PrimeField, DividesByEverythingButZero, ()) {
  const auto a = PrimeField::from_residue(*rc::gen::arbitrary<std::uint64_t>());
  const auto b = PrimeField::from_residue(*rc::gen::arbitrary<std::uint64_t>());
  RC_PRE(!(b == PrimeField(0)));
  RC_ASSERT((a / b) * b == a);
}

TEST(PrimeField, HandlesTheEndsOfItsRange) {
  const auto last = PrimeField::from_residue(PrimeField::modulus - 1);
  EXPECT_EQ(last, PrimeField(-1));
  EXPECT_EQ(last * last, PrimeField(1));
  EXPECT_EQ(last + PrimeField(1), PrimeField(0));
  EXPECT_EQ(PrimeField(0) - PrimeField(0), PrimeField(0));
  EXPECT_EQ(PrimeField(std::numeric_limits<int>::min()) + PrimeField::from_residue(1ull << 31),
            PrimeField(0));
}

TEST(PrimeField, HasAPrimeModulus) {
  EXPECT_GE(PrimeField::modulus, (std::uint64_t{1} << 61) - 1);
  EXPECT_TRUE(mpz_probab_prime_p(Integer(PrimeField::modulus).backend().data(), 50));
}

}  // namespace
}  // namespace attest
